/* adamw.cu - one step of AdamW (Loshchilov and Hutter 2019; kernel.h), in the CPU's arithmetic, for
 * up to MANY parameters at a time.
 *
 * Limited by memory: p, g, mu and nu are read and p, mu and nu written once, 28 bytes an element in
 * float32; nothing of it is soon used again, so it goes past the caches. A block has elements of
 * one parameter; small ones share a launch, which alone would not fill the GPU. Outputs may alias
 * the inputs of their names: a thread writes what it has read; with step 0 nothing else. */
#include "device.cuh"

typedef Compute<PARAM> Real;

struct Settings { /* a parameter: KAdamw */
    double b1, b2, eps, eps_root, decay;
};
enum { INPUTS = 7, OUTPUTS = 3 };
struct In { /* a parameter: p, g, mu, nu, lr, step, clip of each */
    const char *at[MANY * INPUTS];
};
struct Out { /* a parameter: p, mu, nu of each */
    char *at[MANY * OUTPUTS];
};
struct Members { /* a parameter: elements of each, and where its blocks end */
    i64 count[MANY], end[MANY];
};
struct Places { /* a parameter: where elements lie that are not DENSE; then there is one member */
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

/* Element i of a tensor that is dense, or lies as `view` says. */
template <class T> DEVICE T *element(T *first, const View &view, i64 i) {
    return DENSE ? first + i : view.at(first, i);
}

extern "C" __global__ __launch_bounds__(256) void adamw(In in, Out out, Members members, Settings s,
                                                        Places at) {
    __shared__ Factors f;
    int m = 0;
    while (m + 1 < MANY && (i64)blockIdx.x >= members.end[m]) m++;
    i64 block = blockIdx.x - (m > 0 ? members.end[m - 1] : 0), count = members.count[m];
    const char *const *from = in.at + m * INPUTS;
    char *const *to = out.at + m * OUTPUTS;
    const PARAM *p = (const PARAM *)from[0];
    const GRAD *g = (const GRAD *)from[1];
    const MU *mu = (const MU *)from[2];
    const NU *nu = (const NU *)from[3];
    PARAM *p_out = (PARAM *)to[0];
    MU *mu_out = (MU *)to[1];
    NU *nu_out = (NU *)to[2];
    double step = *(const SCALAR *)from[5];
    if (threadIdx.x == 0)
        f.lr = *(const SCALAR *)from[4], f.clip = *(const SCALAR *)from[6];
    else if (threadIdx.x == 32)
        f.unbias1 = (Real)(1 / (1 - power(s.b1, step)));
    else if (threadIdx.x == 64)
        f.unbias2 = (Real)(1 / (1 - power(s.b2, step)));
    i64 i = (block * 256 + threadIdx.x) * VEC;
    bool aligned = DENSE && is_aligned<VEC>(p) && is_aligned<VEC>(g) && is_aligned<VEC>(mu) &&
                   is_aligned<VEC>(nu) && is_aligned<VEC>(p_out) && is_aligned<VEC>(mu_out) &&
                   is_aligned<VEC>(nu_out);
    if (aligned && count % VEC == 0) {
        i64 k = i < count ? i : 0; /* all threads meet at the barrier; the loads are before it */
        State<VEC> state(p + k, g + k, mu + k, nu + k);
        __syncthreads();
        if (step >= 1) state.step(s, f);
        if (i < count) state.put(p_out + i, mu_out + i, nu_out + i);
        return;
    }
    __syncthreads();
    for (i64 k = i; k < i + VEC && k < count; k++) {
        State<1> state(element(p, at.p, k), element(g, at.g, k), element(mu, at.mu, k),
                       element(nu, at.nu, k));
        if (step >= 1) state.step(s, f);
        state.put(element(p_out, at.p_out, k), element(mu_out, at.mu_out, k),
                  element(nu_out, at.nu_out, k));
    }
}
