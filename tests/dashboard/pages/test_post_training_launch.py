"""Launch files on the Post-train page: the plan as every framework writes it, and a file of one's own in the fields."""

from __future__ import annotations

from typing import Any

from streamlit.testing.v1 import AppTest

from engine.launch.post_training import RUN_FRAMEWORKS
from engine.questions import answer
from engine.questions.documents.post_training import PostTrainingQuestion
from engine.questions.post_training_launch import write_planned_run
from tests.dashboard.page_runs import html, page_alone

LINK = {"model": "llama-3.1-8B", "system": "h100_80g_sxm", "procs": "16", "mode": "one_step_off"}
SCRIPT = """python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer.yaml \\
    actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B data.train_batch_size=128 data.max_response_length=2048 \\
    actor_rollout_ref.rollout.n=16 actor_rollout_ref.actor.ppo_mini_batch_size=32 algorithm.adv_estimator=grpo \\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.7 trainer.nnodes=4 trainer.n_gpus_per_node=8 \\
    actor_rollout_ref.actor.megatron.expert_model_parallel_size=8 actor_rollout_ref.rollout.enforce_eager=True
"""


def run(**link: str) -> AppTest:
    app = page_alone("post_training")
    app.session_state["_url"] = {f"post_training_{name}": value for name, value in {**LINK, **link}.items()}
    app.run()
    assert not app.exception
    return app


def words(app: AppTest) -> str:
    return " ".join(each.value for each in (*app.caption, *app.info, *app.warning)).replace("\\", "")


def test_the_card_has_the_file_of_the_fastest_mode() -> None:
    question: dict[str, Any] = {"model": LINK["model"], "system": LINK["system"], "num_procs": 16, "prompts": 64}
    question |= {"group": 32, "updates": 4, "response": {"mean": 1000.0, "cap": 3968}, "mode": "one_step_off"}
    row = answer("plan_post_training", question)["best"][0]
    app = run()
    for name, framework in RUN_FRAMEWORKS.items():
        app.selectbox(key="post_training_framework").set_value(name).run()
        assert not app.exception
        made = write_planned_run(PostTrainingQuestion.model_validate(question), row, name)
        assert [each.value.strip() for each in app.code] == [made.files[0].text.strip()]
        assert framework.version in words(app)
        for sentence in (*made.not_expressible, *made.remarks):
            assert sentence.split(":")[0] in words(app)


def test_an_own_file_fills_the_fields_and_names_the_rest() -> None:
    app = run()
    app.text_area(key="post_training_own_text").set_value(SCRIPT).run()
    assert not app.exception
    assert not app.error
    assert "Requests at once <b>256</b>" in html(app)
    told = words(app)
    assert "does not say: Mean response, Prompt length" in told
    assert "training layout" in told
    assert "Mode <b>Colocated</b>" in html(app)
    assert "without CUDA graphs" in told
    app.button(key="post_training_own_use").click().run()
    assert not app.exception
    url = app.session_state["_url"]
    expected = {"model": "qwen3-30B-A3B", "procs": "32", "prompts": "128", "group": "16", "cap": "2048", "share": "0.7"}
    assert {name: url.get(f"post_training_{name}") for name in expected} == expected
    assert url["post_training_mode"] == "colocated"
    assert "post_training_mean" not in url
    assert next(each.value for each in app.selectbox if each.label == "Model") == "qwen3-30B-A3B"


def test_a_file_that_is_none_is_refused_in_a_sentence() -> None:
    app = run()
    app.text_area(key="post_training_own_text").set_value("vllm serve x").run()
    assert not app.exception
    assert "no launch file of reinforcement learning" in app.error[0].value
