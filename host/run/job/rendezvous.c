#include "run/job/rendezvous.h"
#include "base/hash.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { UNIX_NAME = sizeof(struct sockaddr_un) - offsetof(struct sockaddr_un, sun_path) };

bool rendezvous_find(const Ranks *r, Rendezvous *out) {
    *out = (Rendezvous){.port = 0};
    if (r->master[0] && r->port) {
        out->port = r->port;
        snprintf(out->hosts, sizeof out->hosts, "%s", r->master);
    } else if (r->one_host && r->job[0]) {
        snprintf(out->hosts, sizeof out->hosts, "@meshlua-%u-%.*s", (unsigned)geteuid(), RANK_JOB,
                 r->job);
    }
    out->token = hash_str((uint64_t)r->world, r->job);
    return out->hosts[0] != '\0';
}

void rendezvous_text(const Rendezvous *m, char *to, size_t size) {
    if (m->port)
        snprintf(to, size, "%s, port %d", m->hosts, (int)m->port);
    else
        snprintf(to, size, "%s", m->hosts);
}

/* Host number k, counted round the list. */
static void host_of(const Rendezvous *m, int k, char host[HOST_TEXT]) {
    int n = 1;
    for (const char *s = m->hosts; *s; s++) n += *s == ' ';
    const char *s = m->hosts;
    for (k %= n; k > 0; k--) s = strchr(s, ' ') + 1;
    snprintf(host, HOST_TEXT, "%.*s", (int)strcspn(s, " "), s);
}

/* ---- addresses ---- */

typedef union Address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
} Address;

static socklen_t local_address(const char *name, Address *a) {
    size_t n = strlen(name); /* the '@' stands for the 0 that such a name begins with */
    *a = (Address){.local = {.sun_family = AF_UNIX}};
    if (n > UNIX_NAME) n = UNIX_NAME;
    memcpy(a->local.sun_path + 1, name + 1, n - 1);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
}

static socklen_t tcp_address(const char *host, int32_t port, Address *a) {
    char number[16];
    struct addrinfo ask = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC}, *found = NULL;
    snprintf(number, sizeof number, "%d", (int)port);
    if (getaddrinfo(host, number, &ask, &found) != 0 || !found) return 0;
    socklen_t n = found->ai_addrlen <= sizeof *a ? found->ai_addrlen : 0;
    memcpy(a, found->ai_addr, n);
    freeaddrinfo(found);
    return n;
}

/* Of either family, on every interface; where there is no IPv6, of IPv4. */
static socklen_t wildcard(int family, int32_t port, Address *a) {
    if (family == AF_INET6)
        a->v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    else
        a->v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    return family == AF_INET6 ? sizeof a->v6 : sizeof a->v4;
}

static int open_socket(int family) {
    int one = 1, fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && family != AF_UNIX) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* ---- rank 0 ---- */

/* 0, or what errno says. */
static int listen_at(const Address *a, socklen_t n, int *out) {
    int one = 1, zero = 0, fd = open_socket(a->any.sa_family);
    if (fd < 0) return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->any.sa_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    if (bind(fd, &a->any, n) == 0 && listen(fd, SOMAXCONN) == 0) {
        *out = fd;
        return 0;
    }
    int code = errno;
    close(fd);
    return code;
}

static int listen_everywhere(int32_t port, int *out) {
    Address a;
    int code = listen_at(&a, wildcard(AF_INET6, port, &a), out);
    return code && code != EADDRINUSE ? listen_at(&a, wildcard(AF_INET, port, &a), out) : code;
}

static void add_host(Rendezvous *m, const char *host) {
    size_t used = strlen(m->hosts);
    if (used + strlen(host) + 2 <= sizeof m->hosts)
        snprintf(m->hosts + used, sizeof m->hosts - used, "%s%s", used ? " " : "", host);
}

/* The addresses of this host that others can reach; its own where there is no other. */
static void add_hosts(Rendezvous *m) {
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0) list = NULL;
    for (int family = AF_INET; family; family = family == AF_INET ? AF_INET6 : 0)
        for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
            const Address *a = (const Address *)(const void *)i->ifa_addr;
            char host[INET6_ADDRSTRLEN];
            if (!a || a->any.sa_family != family || !(i->ifa_flags & IFF_UP) ||
                (i->ifa_flags & IFF_LOOPBACK))
                continue;
            const void *at =
                family == AF_INET ? (const void *)&a->v4.sin_addr : (const void *)&a->v6.sin6_addr;
            if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a->v6.sin6_addr)) continue;
            if (inet_ntop(family, at, host, sizeof host)) add_host(m, host);
        }
    if (list) freeifaddrs(list);
    add_host(m, "127.0.0.1");
}

static int32_t port_of(int fd) {
    Address a;
    socklen_t n = sizeof a;
    if (getsockname(fd, &a.any, &n) != 0) return 0;
    return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
}

int rendezvous_listen(Rendezvous *m, bool *taken, char *error, size_t size) {
    Address a;
    int fd = -1, code;
    char host[HOST_TEXT];
    if (!m->hosts[0]) {
        code = listen_everywhere(0, &fd);
        if (!code) {
            m->port = port_of(fd);
            add_hosts(m);
            if (getrandom(&m->token, sizeof m->token, 0) != sizeof m->token) m->token ^= getpid();
        }
    } else if (m->hosts[0] == '@') {
        code = listen_at(&a, local_address(m->hosts, &a), &fd);
    } else {
        host_of(m, 0, host);
        socklen_t n = tcp_address(host, m->port, &a);
        code = n ? listen_at(&a, n, &fd) : EADDRNOTAVAIL;
    }
    *taken = code == EADDRINUSE;
    if (code == EADDRNOTAVAIL)
        snprintf(error, size,
                 "it is no address of this host; give rank 0 one that is, or 0.0.0.0 "
                 "for all of them");
    else if (code)
        snprintf(error, size, "%s", strerror(code));
    return code ? -1 : fd;
}

/* By its address. Of IPv6 anyone has a whole network to come from. */
static void name_guest(const Address *a, RendezvousGuest *who) {
    const struct in6_addr *v6 = &a->v6.sin6_addr;
    struct in_addr v4 = a->v4.sin_addr;
    bool is_v4 = a->any.sa_family == AF_INET;
    if (!is_v4 && IN6_IS_ADDR_V4MAPPED(v6)) {
        is_v4 = true;
        memcpy(&v4, v6->s6_addr + 12, sizeof v4);
    }
    memcpy(&who->network, is_v4 ? (const void *)&v4 : v6->s6_addr, is_v4 ? sizeof v4 : 8);
    if (!inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? (const void *)&v4 : v6, who->from,
                   sizeof who->from))
        who->from[0] = '\0';
}

/* Is the other end of a unix socket of this user? */
static bool same_user(int fd, struct ucred *who) {
    socklen_t n = sizeof *who;
    *who = (struct ucred){.uid = (uid_t)-1};
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &n) == 0 && who->uid == geteuid();
}

int rendezvous_accept(int listener, RendezvousGuest *who) {
    Address a = {.v6 = {0}};
    socklen_t n = sizeof a;
    struct ucred user;
    int one = 1, fd = accept4(listener, &a.any, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
    *who = (RendezvousGuest){.network = 0};
    if (fd < 0 && errno == ECONNABORTED) return RENDEZVOUS_TURNED_AWAY;
    if (fd < 0) return errno == EMFILE || errno == ENFILE ? RENDEZVOUS_NO_ROOM : RENDEZVOUS_NOBODY;
    if (a.any.sa_family != AF_UNIX) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        name_guest(&a, who);
        return fd;
    }
    if (same_user(fd, &user)) return fd;
    snprintf(who->from, sizeof who->from, "uid %ld", (long)(int32_t)user.uid);
    close(fd);
    return RENDEZVOUS_TURNED_AWAY;
}

/* ---- the others ---- */

int rendezvous_connect(const Rendezvous *m, int k) {
    Address a;
    char host[HOST_TEXT];
    host_of(m, k, host);
    socklen_t n = host[0] == '@' ? local_address(host, &a) : tcp_address(host, m->port, &a);
    int fd = n ? open_socket(a.any.sa_family) : -1;
    if (fd < 0 || connect(fd, &a.any, n) == 0 || errno == EINPROGRESS) return fd;
    close(fd);
    return -1;
}

int rendezvous_connected(int fd) {
    int code = 0;
    socklen_t n = sizeof code;
    Address peer = {.v6 = {0}}, own = {.v6 = {0}};
    socklen_t size = sizeof peer, own_size = sizeof own;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &n) != 0 || code != 0) return -1;
    if (getpeername(fd, &peer.any, &size) != 0) return errno == ENOTCONN ? 0 : -1;
    /* where nobody waits yet at a port that the system gives out, a socket may have met itself */
    bool is_tcp = peer.any.sa_family != AF_UNIX && getsockname(fd, &own.any, &own_size) == 0;
    return is_tcp && size == own_size && memcmp(&peer, &own, size) == 0 ? -1 : 1;
}

bool rendezvous_is_ours(int fd) {
    Address own;
    socklen_t n = sizeof own;
    struct ucred who;
    if (getsockname(fd, &own.any, &n) != 0) return false;
    return own.any.sa_family != AF_UNIX || same_user(fd, &who);
}
