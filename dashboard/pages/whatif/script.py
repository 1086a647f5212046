"""What-if: change the hardware, the model or the machine, and see which execution is best then."""

from dashboard.pages.whatif.view import render

render()
