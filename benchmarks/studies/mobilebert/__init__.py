"""MobileBERT: accuracy of distillation, variants, and cost compared with tf-models-official."""
