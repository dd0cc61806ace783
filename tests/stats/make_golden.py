#!/usr/bin/env python3
"""Records distribution functions for tests/stats/distributions_test.cc.

Usage: make_golden.py OUTPUT_FOLDER     writes OUTPUT_FOLDER/distributions.txt

Values come from mpmath at 60 digits, and SciPy must agree to 1e-9 wherever it can represent the
result: two programs that share no code. Lines: function, arguments, value.
"""

import sys
from pathlib import Path

import mpmath as mp
from scipy import special, stats

mp.mp.dps = 60
LINES = []


def record(function, arguments, value, scipy_value=None):
    value = mp.mpf(value)
    if scipy_value is not None and abs(value) > mp.mpf("1e-290"):
        error = abs(mp.mpf(float(scipy_value)) / value - 1) if value != 0 else abs(scipy_value)
        assert error < 1e-9, (function, arguments, mp.nstr(value, 17), scipy_value)
    shown = " ".join(repr(a) for a in arguments)
    LINES.append(f"{function} {shown} {mp.nstr(value, 20)}")


def beta_inc(a, b, x):
    """I_x(a, b), the regularised incomplete beta function."""
    a, b, x = mp.mpf(a), mp.mpf(b), mp.mpf(x)
    if x > 0.99 or x > (a + 1) / (a + b + 2):  # slow on this side
        other_side = 1 - positive_series(b, a, 1 - x)
        if other_side > mp.mpf("1e-25"):  # enough of the 50 digits are left
            return other_side
    return positive_series(a, b, x)


def positive_series(a, b, x):
    """I_x(a, b) by x^a (1-x)^b / (a B(a, b)) * sum of (a+b)_i / (a+1)_i x^i: all terms positive."""
    log_beta = mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b)
    term = mp.exp(a * mp.log(x) + b * mp.log1p(-x) - log_beta) / a if x > 0 else mp.mpf(0)
    total, i = mp.mpf(0), 0
    while term > total * mp.mpf("1e-50"):
        total += term
        term *= x * (a + b + i) / (a + 1 + i)
        i += 1
    return total


def t_upper(t, df):
    t, df = mp.mpf(t), mp.mpf(df)
    tail = beta_inc(df / 2, mp.mpf(1) / 2, df / (df + t * t)) / 2
    return tail if t >= 0 else 1 - tail


def normal():
    for x in [-37.5, -20.0, -8.25, -5.0, -2.5, -1.0, -0.1, -1e-10, 0.0, 1e-3, 0.7, 1.96, 4.0, 8.0]:
        record("normal_cdf", [x], mp.ncdf(x), stats.norm.cdf(x))
    for p in [1e-300, 1e-100, 1e-20, 1e-10, 8.86e-5, 0.0125, 0.025, 0.3, 0.499999, 0.5, 0.75, 0.999]:
        z = float(special.ndtri(p))
        exact = mp.findroot(lambda v: mp.log(mp.ncdf(v)) - mp.log(mp.mpf(p)), z) if p != 0.5 else 0
        record("normal_quantile", [p], exact, z)


def student():
    for df in [1.0, 2.0, 3.5, 7.0, 29.0, 124.0, 1000.0, 1e5]:
        for t in [-40.0, -8.0, -3.0, -1.0, 0.0, 0.25, 1.7, 2.5, 6.0, 25.0, 300.0]:
            if df == 1e5 and abs(t) > 30:
                continue  # below what a double holds
            record("student_t_upper", [t, df], t_upper(t, df), stats.t.sf(t, df))
        for q in [1e-12, 7.3e-6, 0.025, 0.2, 0.6]:
            guess = stats.t.isf(q, df)
            exact = mp.findroot(lambda v: mp.log(t_upper(v, df)) - mp.log(mp.mpf(q)), guess)
            record("student_t_quantile", [q, df], -exact, -guess)


def chi_square():
    for df in [1.0, 2.0, 3.0, 5.0, 12.0, 60.5]:
        for x in [1e-8, 0.1, 1.0, 3.84, 10.0, 50.0, 300.0, 1200.0]:
            exact = mp.gammainc(mp.mpf(df) / 2, mp.mpf(x) / 2, mp.inf, regularized=True)
            record("chi_square_upper", [x, df], exact, stats.chi2.sf(x, df))


def log_tail(k, n, p):
    """ln P(X >= k) summed exactly; the smaller side, with as many digits as the terms need."""
    p = mp.mpf(p)
    above = k > n * p
    first, last, step = (k, n, 1) if above else (k - 1, 0, -1)
    term = mp.exp(mp.loggamma(n + 1) - mp.loggamma(first + 1) - mp.loggamma(n - first + 1)
                  + first * mp.log(p) + (n - first) * mp.log1p(-p))
    total = mp.mpf(0)
    i = first
    while True:
        total += term
        if i == last or term < total * mp.mpf("1e-45"):
            break
        if above:
            term *= p / (1 - p) * (n - i) / (i + 1)
        else:
            term *= (1 - p) / p * i / (n - i + 1)
        i += step
    return mp.log(total) if above else mp.log1p(-total)


def binomial():
    for n, p, ks in [
        (12, 0.5, range(1, 13)),
        (36, 0.5, [1, 11, 18, 25, 36]),
        (400, 0.03, [1, 5, 12, 13, 30, 100, 400]),
        (1000, 0.5, [300, 450, 500, 501, 550, 700, 1000]),
        (100000, 0.001, [50, 100, 101, 150, 400, 5000]),
        (1000000, 0.5, [490000, 499000, 500000, 500001, 501500, 520000, 999999]),
        (1000000, 1e-6, [1, 2, 10, 100]),
    ]:
        for k in ks:
            exact = log_tail(k, n, p)
            reference = stats.binom.logsf(k - 1, n, p)
            # SciPy's logsf is the logarithm of its sf: useless where that underflows or nears 1.
            usable = reference if -600 < reference < -1e-6 else None
            record("log_binomial_upper", [k, n, p], exact, usable)
    for k, n in [(2.5, 7.25), (0.3, 0.9), (11.7, 30.2), (150.5, 260.1), (4000.25, 7500.5), (9.5, 9.5)]:
        record("binomial_upper", [k, n, 0.5], beta_inc(k, mp.mpf(n) - k + 1, 0.5),
               special.betainc(k, n - k + 1, 0.5))


def main():
    normal()
    student()
    chi_square()
    binomial()
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "distributions.txt").write_text("\n".join(LINES) + "\n")
    print(f"{len(LINES)} values")


if __name__ == "__main__":
    main()
