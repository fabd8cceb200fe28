/* What the kernels need of C. */

#include <stdint.h>
#include <string.h>

#define GROUP_ITEMS 1
#define KERNEL static void
#define GLOBAL
#define LOCAL
#define GROUP the_group
#define ITEM 0
#define BARRIER
#define UNROLL

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;
typedef struct { u64 low, high; } u128;

static _Thread_local u32 the_group;
