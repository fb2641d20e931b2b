"""gRPC without generated code: a channel that carries bytes, and Kubernetes' objects in protocol buffers."""
