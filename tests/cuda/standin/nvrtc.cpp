/* nvrtc.cpp - stand-in for libnvrtc: device code goes through the preprocessor, a few of its words
 * are rewritten, and g++ makes a shared library of it; the library's bytes are the cubin. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#pragma GCC visibility push(default)
#include <nvrtc.h>
#pragma GCC visibility pop
#include <set>
#include <spawn.h>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

struct _nvrtcProgram {
    std::string source, name, log, cubin;
    std::vector<std::pair<std::string, std::string>> headers; /* name, text */
};

typedef std::vector<std::string> Words;

static std::string read_file(const std::string &name) {
    std::ifstream in(name, std::ios::binary);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
}
static bool write_file(const std::string &name, const std::string &text) {
    std::ofstream out(name, std::ios::binary);
    return (bool)(out << text).flush();
}

/* ---- the compiler ---- */

static bool run(Words words, const std::string &errors) {
    std::vector<char *> argv;
    for (std::string &w : words) argv.push_back(&w[0]);
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 2, errors.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                     0600);
    pid_t child;
    int status = 0, failed = posix_spawnp(&child, argv[0], &files, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    return !failed && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

/* ---- rewriting ---- */

/* What the words of CUDA said that g++ does not know. */
struct Found {
    std::vector<std::pair<std::string, std::string>> kernels; /* name, launch bound */
    std::set<std::string> dynamic;                            /* extern __shared__ arrays */
};

static bool is_name(char c) {
    return isalnum((unsigned char)c) || c == '_';
}
static size_t skip_space(const std::string &s, size_t at) {
    while (at < s.size() && isspace((unsigned char)s[at])) at++;
    return at;
}
/* Behind the bracket that closes the one at `at`. */
static size_t close_of(const std::string &s, size_t at) {
    int depth = 0;
    do {
        if (s[at] == '(') depth++;
        if (s[at] == ')') depth--;
        at++;
    } while (depth && at < s.size());
    return at;
}
static std::string name_at(const std::string &s, size_t at) {
    size_t end = at;
    while (end < s.size() && is_name(s[end])) end++;
    return s.substr(at, end - at);
}
/* The name that ends in front of `end`. */
static std::string name_before(const std::string &s, size_t end) {
    while (end > 0 && isspace((unsigned char)s[end - 1])) end--;
    size_t from = end;
    while (from > 0 && is_name(s[from - 1])) from--;
    return s.substr(from, end - from);
}

/* "void __launch_bounds__(256) softmax(" from `at` on: which kernel it is. */
static void find_kernel(const std::string &s, size_t at, Found *found) {
    std::string bound = "0";
    for (; at < s.size(); at++) {
        if (s[at] != '(') continue;
        std::string name = name_before(s, at);
        if (name != "__launch_bounds__" && name != "__attribute__") {
            for (const auto &k : found->kernels)
                if (k.first == name) return;
            found->kernels.emplace_back(name, bound);
            return;
        }
        size_t end = close_of(s, at);
        if (name == "__launch_bounds__") {
            int depth = 0;
            size_t stop = at + 1;
            while (stop < end - 1 && (depth || s[stop] != ',')) {
                depth += s[stop] == '(' ? 1 : s[stop] == ')' ? -1 : 0;
                stop++;
            }
            bound = s.substr(at + 1, stop - at - 1);
        }
        at = end - 1;
    }
}

static std::string rewrite(const std::string &s, Found *found) {
    std::string out, before;
    for (size_t at = 0; at < s.size();) {
        if (s[at] == '"' || s[at] == '\'') {
            size_t end = at + 1;
            while (end < s.size() && s[end] != s[at]) end += s[end] == '\\' ? 2 : 1;
            out += s.substr(at, end + 1 - at);
            at = end + 1;
            continue;
        }
        if (!is_name(s[at])) {
            out += s[at++];
            continue;
        }
        std::string word = name_at(s, at);
        at += word.size();
        if (word == "__global__") {
            find_kernel(s, at, found);
        } else if (word == "__launch_bounds__") {
            at = close_of(s, skip_space(s, at));
        } else if (word == "__shared__") {
            if (before == "extern")
                found->dynamic.insert(name_before(s, s.find('[', at)));
            else
                out += "static";
            size_t next = skip_space(s, at);
            if (name_at(s, next) == "alignas") { /* g++ wants it elsewhere */
                size_t open = skip_space(s, next + 7), end = close_of(s, open);
                out += " __attribute__((aligned" + s.substr(open, end - open) + "))";
                at = end;
            }
        } else {
            out += word;
        }
        before = word;
    }
    return out;
}

/* What module.h promises, behind the code. */
static std::string tables(const Found &found) {
    std::string out = "\n# 1 \"tables\"\n", rows, dynamic = "0";
    if (!found.dynamic.empty()) {
        out += "extern \"C\" { __attribute__((aligned(1024), visibility(\"hidden\"))) char "
               "standin_dynamic[STANDIN_SHARED + 256]; }\n";
        for (const std::string &name : found.dynamic)
            out += "asm(\".globl " + name + "\\n.hidden " + name + "\\n.set " + name +
                   ", standin_dynamic\");\n";
        dynamic = "standin_dynamic";
    }
    for (const auto &k : found.kernels) {
        /* fails where the kernel is not extern "C": nobody would find it by its name */
        out += "extern \"C\" void standin_alias_" + k.first + "() __attribute__((alias(\"" +
               k.first + "\")));\n";
        rows += "    {\"" + k.first + "\", (unsigned)(" + k.second + "), StandinCall<decltype(" +
                k.first + ")>::count, StandinCall<decltype(" + k.first +
                ")>::sizes, StandinCall<decltype(" + k.first + ")>::run<" + k.first + ">},\n";
    }
    out += "extern \"C\" __attribute__((visibility(\"hidden\"))) char __bss_start[], _end[];\n"
           "static const StandinKernel standin_kernels[] = {\n" +
           rows +
           "    {}};\n"
           "extern \"C\" __attribute__((visibility(\"default\"))) const StandinModule "
           "standin_module = {&standin_thread, __bss_start, _end, " +
           dynamic + ", standin_kernels, " + std::to_string(found.kernels.size()) + "};\n";
    return out;
}

/* ---- compiling ---- */

static Words flags() {
    Words f = {STANDIN_CXX,
               "-std=c++17",
               "-O0", /* twice as fast to compile, and the tests' tensors are small */
               "-w",
               "-fPIC",
               "-fvisibility=hidden",
               "-fno-exceptions",
               "-fno-rtti",
               "-fno-threadsafe-statics",
               "-fno-strict-aliasing",
               "-fno-math-errno",
               "-ffp-contract=off",
               "-nodefaultlibs"}; /* a sanitizer's are in the program: to link them takes long */
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        f.push_back("-march=x86-64-v3");
#endif
#ifdef __SANITIZE_ADDRESS__
    /* Pointers that are wrong are found where they are used. */
    f.insert(f.end(),
             {"-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
              "-fno-sanitize=null,object-size,pointer-overflow", "-fno-omit-frame-pointer"});
#else
    /* A GPU faults where an access is not aligned to its size. */
    f.insert(f.end(), {"-fno-asynchronous-unwind-tables", "-Wl,--build-id=none",
                       "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"});
#endif
    return f;
}

static bool compile(nvrtcProgram p, const std::string &folder, const Words &options) {
    std::string errors = folder + "/errors", code = folder + "/code.ii",
                library = folder + "/code.so";
    bool written = write_file(folder + "/" + p->name, p->source);
    for (const auto &h : p->headers) written &= write_file(folder + "/" + h.first, h.second);
    if (!written) return p->log = "cannot write to " + folder + "\n", false;

    Words words = flags();
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"-E", "-x", "c++", "-include", STANDIN_SHIM, "-I", folder, "-o",
                               code, folder + "/" + p->name});
    if (!run(words, errors)) return p->log = read_file(errors), false;

    Found found;
    std::string text = rewrite(read_file(code), &found);
    text += tables(found);
    write_file(code, text);
    words = flags();
    words.insert(words.end(), {"-shared", "-nostartfiles", "-x", "c++-cpp-output", code, "-o",
                               library, "-x", "none", "-lm", "-lgcc"});
    if (!run(words, errors)) return p->log = read_file(errors), false;
    p->cubin = read_file(library);
    return true;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *options) {
    Words defines;
    for (int i = 0; i < n; i++) {
        std::string o = options[i];
        if (o.compare(0, 16, "--define-macro=") == 0) o = "-D" + o.substr(15);
        if (o.compare(0, 22, "--gpu-architecture=sm_") == 0)
            o = "-D__CUDA_ARCH__=" + std::to_string(10 * atoi(o.c_str() + 22));
        if (o.compare(0, 2, "-D") == 0 || o.compare(0, 2, "-I") == 0) defines.push_back(o);
    }
    std::string folder = (std::filesystem::temp_directory_path() / "standin-XXXXXX").string();
    if (!mkdtemp(&folder[0])) return NVRTC_ERROR_PROGRAM_CREATION_FAILURE;
    bool ok = compile(p, folder, defines);
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    return ok ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

/* ---- programs ---- */

nvrtcResult nvrtcCreateProgram(nvrtcProgram *p, const char *source, const char *name, int n,
                               const char *const *headers, const char *const *names) {
    *p = new _nvrtcProgram();
    (*p)->source = source;
    (*p)->name = name && *name ? name : "default_program";
    for (int i = 0; i < n; i++) (*p)->headers.emplace_back(names[i], headers[i]);
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram *p) {
    delete *p;
    *p = nullptr;
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *size) {
    *size = p->cubin.size();
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *cubin) {
    memcpy(cubin, p->cubin.data(), p->cubin.size());
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *size) {
    *size = p->log.size() + 1;
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *log) {
    memcpy(log, p->log.c_str(), p->log.size() + 1);
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcVersion(int *major, int *minor) {
    *major = 13;
    *minor = 0;
    return NVRTC_SUCCESS;
}
static const int archs[] = {80, 90, 100};
nvrtcResult nvrtcGetNumSupportedArchs(int *n) {
    *n = sizeof archs / sizeof *archs;
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int *out) {
    memcpy(out, archs, sizeof archs);
    return NVRTC_SUCCESS;
}
const char *nvrtcGetErrorString(nvrtcResult result) {
    return result == NVRTC_SUCCESS             ? "NVRTC_SUCCESS"
           : result == NVRTC_ERROR_COMPILATION ? "NVRTC_ERROR_COMPILATION"
                                               : "NVRTC_ERROR";
}
