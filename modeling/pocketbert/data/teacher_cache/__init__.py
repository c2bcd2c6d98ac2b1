"""The teacher cache: stored outputs of a teacher."""
