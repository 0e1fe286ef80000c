"""Backend ``kwok``: pods on a Kubernetes API server, real or of Kwok."""
