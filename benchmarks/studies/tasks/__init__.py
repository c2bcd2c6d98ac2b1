"""Fine-tuned accuracy of the 6x384 network, float and int8."""
