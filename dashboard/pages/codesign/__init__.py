"""Co-design: which of a thousand machines is the best to build or buy for a mix of models, under a budget."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="codesign",
    title="Co-design",
    group=NavigationGroup.PLAN,
    place=5,
    help="Which of many machines is the best for a mix of models, under a budget.",
    needs=Needs.NOTHING,
    guide="codesign",
    parameters={
        "codesign_study": "study",
        "codesign_own": "study of one's own",
        "codesign_up": "quantity to optimise",
        "codesign_across": "quantity against it",
        "codesign_of": "model of the mix",
        "codesign_at": "end of the prices",
        "codesign_picture": "picture",
        "codesign_x": "choice across",
        "codesign_y": "choice up",
        "codesign_design": "design",
        "codesign_kept": "filters of designs",
        "codesign_worth": "where one more dollar goes",
    },
)
