"""From a model to a `.tflite` file."""
