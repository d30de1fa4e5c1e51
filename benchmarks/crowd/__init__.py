"""Cases, figures and summary of the scenario `crowd`; `scenarios/crowd.py` measures."""
