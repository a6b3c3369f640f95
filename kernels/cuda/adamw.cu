/* adamw.cu - one step of AdamW (Loshchilov and Hutter 2019; kernel.h), in the CPU's arithmetic.
 *
 * Limited by memory: p, g, mu and nu are read and p, mu and nu written once, 28 bytes an element in
 * float32; nothing of it is soon used again, so it goes past the caches. Outputs may alias the
 * inputs of their names: a thread writes what it has read. */
#include "device.cuh"

typedef Compute<PARAM> Real;

struct Settings { /* a parameter: KAdamw */
    double b1, b2, eps, eps_root, decay;
};
struct Places { /* a parameter: where element i lies, if they are not DENSE */
    View p, g, mu, nu, p_out, mu_out, nu_out;
};

struct Factors {
    Real lr, clip, unbias1, unbias2;
};

/* b^step by squaring, so that 1 - b^step loses no digits. */
DEVICE double power(double b, double step) {
    double r = 1;
    for (i64 e = step >= 1 && step < 1e12 ? (i64)step : 0; e; e >>= 1, b *= b)
        if (e & 1) r *= b;
    return r;
}

struct Element {
    Real p, mu, nu;

    DEVICE void step(Real g, const Settings &s, const Factors &f) {
        Real d = g * f.clip;
        mu = math::fma((Real)s.b1, mu, (Real)(1 - s.b1) * d);
        nu = math::fma((Real)s.b2, nu, (Real)(1 - s.b2) * (d * d));
        Real root = math::sqrt(math::fma(nu, f.unbias2, (Real)s.eps_root)) + (Real)s.eps;
        p = math::fma(-f.lr, math::fma((Real)s.decay, p, mu * f.unbias1 / root), p);
    }
};

template <int W> struct State { /* W neighbours */
    Vec<PARAM, W> p;
    Vec<GRAD, W> g;
    Vec<MU, W> mu;
    Vec<NU, W> nu;

    DEVICE State(const PARAM *pp, const GRAD *gp, const MU *mup, const NU *nup) {
        p = load_once<W>(pp), g = load_once<W>(gp), mu = load_once<W>(mup), nu = load_once<W>(nup);
    }
    DEVICE void step(const Settings &s, const Factors &f) {
#pragma unroll
        for (int i = 0; i < W; i++) {
            Element e = {widen(p.at[i]), widen(mu.at[i]), widen(nu.at[i])};
            e.step(widen(g.at[i]), s, f);
            p.at[i] = narrow<PARAM>(e.p);
            mu.at[i] = narrow<MU>(e.mu);
            nu.at[i] = narrow<NU>(e.nu);
        }
    }
    DEVICE void put(PARAM *pp, MU *mup, NU *nup) const {
        store_once<W>(pp, p), store_once<W>(mup, mu), store_once<W>(nup, nu);
    }
};

extern "C" __global__ __launch_bounds__(256) void adamw(const PARAM *p, const GRAD *g, const MU *mu,
                                                        const NU *nu, const SCALAR *lr,
                                                        const SCALAR *step, const SCALAR *clip,
                                                        PARAM *p_out, MU *mu_out, NU *nu_out,
                                                        Settings s, Places at, i64 count) {
    __shared__ Factors f;
    if (threadIdx.x == 0)
        f.lr = *lr, f.clip = *clip;
    else if (threadIdx.x == 32)
        f.unbias1 = (Real)(1 / (1 - power(s.b1, *step)));
    else if (threadIdx.x == 64)
        f.unbias2 = (Real)(1 / (1 - power(s.b2, *step)));
    i64 i = ((i64)blockIdx.x * 256 + threadIdx.x) * VEC;
    bool aligned = DENSE && is_aligned<VEC>(p) && is_aligned<VEC>(g) && is_aligned<VEC>(mu) &&
                   is_aligned<VEC>(nu) && is_aligned<VEC>(p_out) && is_aligned<VEC>(mu_out) &&
                   is_aligned<VEC>(nu_out);
    if (aligned && count % VEC == 0) {
        i64 from = i < count ? i : 0; /* all threads meet at the barrier; the loads are before it */
        State<VEC> state(p + from, g + from, mu + from, nu + from);
        __syncthreads();
        state.step(s, f);
        if (i < count) state.put(p_out + i, mu_out + i, nu_out + i);
        return;
    }
    __syncthreads();
    for (i64 k = i; k < i + VEC && k < count; k++) {
        State<1> state(DENSE ? p + k : at.p.at(p, k), DENSE ? g + k : at.g.at(g, k),
                       DENSE ? mu + k : at.mu.at(mu, k), DENSE ? nu + k : at.nu.at(nu, k));
        state.step(s, f);
        state.put(DENSE ? p_out + k : at.p_out.at(p_out, k),
                  DENSE ? mu_out + k : at.mu_out.at(mu_out, k),
                  DENSE ? nu_out + k : at.nu_out.at(nu_out, k));
    }
}
