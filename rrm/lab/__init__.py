"""The lab: small procedural worlds in which a judge can be trained and measured in minutes on two CPU cores."""
