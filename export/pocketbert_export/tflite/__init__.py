"""`.tflite` files: their graph, and runtimes to execute them."""
