"""One line a check, as ./dev test --interop counts them."""

import traceback

import torch


def relative(got, want):
    """Distance of two tensors as a share of the wanted one's norm, in double precision."""
    got, want = got.detach().double().flatten(), want.detach().double().flatten()
    if got.shape != want.shape:
        return float("inf")
    return float(torch.linalg.vector_norm(got - want) / max(float(torch.linalg.vector_norm(want)), 1e-300))


def largest_difference(got, want):
    """The largest |got - want|; infinite for lists of different lengths or no values at all."""
    if len(got) != len(want) or not got:
        return float("inf")
    return max(abs(g - w) for g, w in zip(got, want))


class Checks:
    def __init__(self):
        self.failed = 0

    def within(self, name, difference, bound):
        """Passes when the difference is a number at most bound."""
        if difference <= bound:
            print(f"ok {name}: {difference:.2e} <= {bound:.0e}", flush=True)
        else:
            self.fail(name, f"{difference:.3e} > {bound:.0e}")

    def equal(self, name, got, want):
        if got == want:
            print(f"ok {name}", flush=True)
        else:
            self.fail(name, f"got {str(got)[:300]}, want {str(want)[:300]}")

    def fail(self, name, why):
        self.failed += 1
        print(f"FAIL {name}: {' '.join(str(why).split())}", flush=True)

    def run(self, name, check, *arguments):
        """A check that dies has failed, and the ones after it still run."""
        try:
            return check(self, *arguments)
        except Exception as error:
            traceback.print_exc()
            self.fail(name, f"{type(error).__name__}: {error}")
            return None
