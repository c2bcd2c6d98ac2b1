"""The teacher cache: a teacher's stored outputs."""
