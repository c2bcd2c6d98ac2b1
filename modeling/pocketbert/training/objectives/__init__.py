"""Training objectives without a teacher."""
