"""Writers of labels: people, models, rules, and mistakes planted into copies of successful runs."""
