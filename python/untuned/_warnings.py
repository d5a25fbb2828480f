"""The warnings of this package."""


class UntunedWarning(UserWarning):
    """A warning of untuned, such as a refused step or a clipped gradient.

    >>> import warnings, untuned
    >>> warnings.simplefilter("error", untuned.UntunedWarning)  # an exception in place of a warning
    """


UntunedWarning.__module__ = "untuned"
