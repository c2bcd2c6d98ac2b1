"""Models on Hugging Face's hub by name, such as `hf:google-bert/bert-base-uncased`."""
