"""Nodes without a vote: quarantine, duplicate nodes, a missing quorum. Forced release, too."""
