"""Training a judge: SFT, RL, calibration. One file a stage; `rrm.train.run` runs them in order."""
