/* What stands before UCX in tests: it says that memory of CUDA's devices is reached, refuses puts while there is
 * a file REFUSES, and leaves all else to the library that it is linked to. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

/* As in ucp/api/ucp.h. */
struct attributes {
    uint64_t mask;
    size_t request_size;
    int thread_mode;
    uint64_t memory_types;
};

enum { HAS_MEMORY_TYPES = 1 << 2, CUDA = 1 << 1 };

signed char ucp_context_query(void *context, struct attributes *said)
{
    signed char (*query)(void *, struct attributes *) = dlsym(RTLD_NEXT, "ucp_context_query");
    signed char status = query(context, said);
    if (said->mask & HAS_MEMORY_TYPES)
        said->memory_types |= CUDA;
    return status;
}

typedef void *put(void *, const void *, size_t, uint64_t, void *, const void *);
put ucp_put_nbx;

void *ucp_put_nbx(void *to, const void *from, size_t bytes, uint64_t at, void *key, const void *how)
{
    put *real = (put *)dlsym(RTLD_NEXT, "ucp_put_nbx");
    return access(REFUSES, F_OK) ? real(to, from, bytes, at, key, how) : (void *)(intptr_t)-3;
}
