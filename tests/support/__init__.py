"""The real services that tests run against, and the means to look at what came out."""
