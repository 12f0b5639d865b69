"""One file a revision; ``supervisor.store.revisions`` lists them in order."""
