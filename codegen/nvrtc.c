/* nvrtc.c -- CUDA C to cubins, by NVIDIA's run-time compiler.
 *
 * It needs no GPU and no driver.  The library is opened when asked for, so
 * dpc builds and runs where there is none. */
#include "codegen/kernel.h"
#include <dlfcn.h>
#include <stdlib.h>

typedef struct Program_ *Prog;
typedef int Result;                       /* 0: success */

static struct Nvrtc {
    Result (*create)(Prog *, const char *text, const char *name, int,
                     const char *const *, const char *const *);
    Result (*compile)(Prog, int, const char *const *);
    Result (*cubin_size)(Prog, size_t *);
    Result (*cubin)(Prog, char *);
    Result (*log_size)(Prog, size_t *);
    Result (*log)(Prog, char *);
    Result (*destroy)(Prog *);
    const char *(*error)(Result);
    bool tried, open;
} nvrtc;

static void *library(void)
{
    static const char *const name[] = {
        "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"
    };
    const char *home = getenv("CUDA_HOME");
    const char *dir[] = { "", home, "/usr/local/cuda" };
    for (int d = 0; d < COUNT(dir); d++)
        for (int i = 0; dir[d] && i < COUNT(name); i++) {
            char path[1024];
            snprintf(path, sizeof path, "%s%s%s", dir[d],
                     *dir[d] ? "/lib64/" : "", name[i]);
            void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (lib)
                return lib;
        }
    return NULL;
}

/* ISO C has no cast from object to function pointers. */
static bool find(void *lib, const char *name, void *to)
{
    void *p = dlsym(lib, name);
    memcpy(to, &p, sizeof p);
    return p != NULL;
}

bool nvrtc_available(const char **why)
{
    if (!nvrtc.tried) {
        void *lib = library();
        nvrtc.tried = true;
        nvrtc.open = lib && find(lib, "nvrtcCreateProgram", &nvrtc.create)
            && find(lib, "nvrtcCompileProgram", &nvrtc.compile)
            && find(lib, "nvrtcGetCUBINSize", &nvrtc.cubin_size)
            && find(lib, "nvrtcGetCUBIN", &nvrtc.cubin)
            && find(lib, "nvrtcGetProgramLogSize", &nvrtc.log_size)
            && find(lib, "nvrtcGetProgramLog", &nvrtc.log)
            && find(lib, "nvrtcDestroyProgram", &nvrtc.destroy)
            && find(lib, "nvrtcGetErrorString", &nvrtc.error);
    }
    *why = nvrtc.open ? NULL : "libnvrtc.so is not found; set CUDA_HOME to the "
                               "CUDA toolkit";
    return nvrtc.open;
}

static char *program_log(Arena *a, Prog p, Result e)
{
    size_t n = 0;
    nvrtc.log_size(p, &n);
    char *s = alloc(a, n + 1);
    nvrtc.log(p, s);
    return n > 1 ? s : fmt(a, "%s", nvrtc.error(e));
}

void *nvrtc_compile(Arena *a, const char *text, const char *arch,
                    size_t *bytes, const char **log)
{
    Prog p;
    char *cubin = NULL;
    if (!nvrtc_available(log))
        return NULL;
    const char *option[] = {
        fmt(a, "--gpu-architecture=%s", arch), "--std=c++17", "--fmad=false"
    };
    Result e = nvrtc.create(&p, text, "kernel.cu", 0, NULL, NULL);
    if (e) {
        *log = nvrtc.error(e);
        return NULL;
    }
    e = nvrtc.compile(p, COUNT(option), option);
    if (!e)
        e = nvrtc.cubin_size(p, bytes);
    if (!e) {
        cubin = alloc(a, *bytes);
        e = nvrtc.cubin(p, cubin);
    }
    *log = program_log(a, p, e);
    nvrtc.destroy(&p);
    return e ? NULL : cubin;
}
