"""Files for other clients: MediaPipe and SavedModel."""
