"""Looking at weights: products, attention maps, covariances."""
