"""What the interop scripts share: running garam, small models and rows, training with Transformers."""
