"""The parts of `dalsegno.testing`."""
