"""The objectives of the trainer that need no teacher."""
