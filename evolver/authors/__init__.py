"""Who proposes candidates: people and Optuna. All of them pass one gate, the loop's race."""
