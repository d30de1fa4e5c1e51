"""Rules for quarantined nodes, duplicate nodes, a missing quorum, and forced release."""
