"""`.tflite` files: their graph, and the runtimes that execute them."""
