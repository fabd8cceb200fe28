/* Kernels that convert layouts on a device. What stands in front of this text defines
 *
 *   KERNEL             what makes a function a kernel of groups of GROUP_ITEMS work items
 *   GLOBAL, LOCAL      memory of the device, and memory of a group
 *   GROUP, ITEM        the number of this group, and that of this work item in it
 *   BARRIER            waits for all work items of the group
 *   u8, u16, u32, u64  unsigned integers of so many bits; i64; and u128, of 16 bytes and aligned so
 *
 * A launch is a grid of groups. Each takes a tile of the first three loops, at a turn of the others
 * and at a start; its work items take the elements of the tile in turn.
 */

typedef struct {
    u32 count;   /* turns */
    u32 tiles;   /* parts of them that tiles take */
    u32 log2;    /* turns of a tile, as a power of two */
    u32 unused;
    i64 src;     /* bytes from turn to turn */
    i64 dst;
} Loop;

typedef struct {
    i64 src;
    i64 dst;
} Start;

typedef struct {
    Loop loops[8];
    Start starts[32];
    u32 rank;
    u32 unused;
} Launch;

/* The tile of this group: where it starts, how far the loops still go, and how long its sides are. */
#define FIND_TILE(launch)                                                     \
    i64 from = 0, to = 0;                                                     \
    u32 left[3];                                                              \
    u32 group = GROUP;                                                        \
    for (u32 n = 0; n < launch.rank; n++) {                                   \
        const u32 tiles = launch.loops[n].tiles;                              \
        const u32 turn = (group % tiles) << launch.loops[n].log2;             \
        group /= tiles;                                                       \
        from += launch.loops[n].src * (i64)turn;                              \
        to += launch.loops[n].dst * (i64)turn;                                \
        if (n < 3)                                                            \
            left[n] = launch.loops[n].count - turn;                           \
    }                                                                         \
    from += launch.starts[group].src;                                         \
    to += launch.starts[group].dst;                                           \
    const u32 log0 = launch.loops[0].log2;                                    \
    const u32 log1 = launch.loops[1].log2;                                    \
    const u32 log01 = log0 + log1;                                            \
    const u32 area = 1u << (log01 + launch.loops[2].log2);                    \
    const u32 mask0 = (1u << log0) - 1, mask1 = (1u << log1) - 1

/* Where turn (x, y, z) of the tile's loops lies on a side. */
#define AT(launch, side, x, y, z)                                             \
    (launch.loops[0].side * (i64)(x) + launch.loops[1].side * (i64)(y) +      \
     launch.loops[2].side * (i64)(z))

#define IS_INSIDE(x, y, z) ((x) < left[0] && (y) < left[1] && (z) < left[2])

/* Each element straight to its place. */
#define COPY(NAME, TYPE)                                                      \
    KERNEL NAME(GLOBAL const u8 *src, GLOBAL u8 *dst, const Launch launch)    \
    {                                                                         \
        FIND_TILE(launch);                                                    \
        for (u32 at = ITEM; at < area; at += GROUP_ITEMS) {                   \
            const u32 x = at & mask0, y = at >> log0 & mask1, z = at >> log01; \
            if (IS_INSIDE(x, y, z))                                           \
                *(GLOBAL TYPE *)(dst + to + AT(launch, dst, x, y, z)) =       \
                    *(GLOBAL const TYPE *)(src + from + AT(launch, src, x, y, z)); \
        }                                                                     \
    }

/* By way of the group's memory: read along the first loop, written along the second. A row there is
 * one element longer than the tile's, so that a column doesn't lie in one bank. */
#define TURN(NAME, TYPE, AREA)                                                \
    KERNEL NAME(GLOBAL const u8 *src, GLOBAL u8 *dst, const Launch launch)    \
    {                                                                         \
        LOCAL TYPE tile[AREA + AREA / 2];                                     \
        FIND_TILE(launch);                                                    \
        for (u32 at = ITEM; at < area; at += GROUP_ITEMS) {                   \
            const u32 x = at & mask0, y = at >> log0 & mask1, z = at >> log01; \
            if (IS_INSIDE(x, y, z))                                           \
                tile[(at >> log0) * (mask0 + 2) + x] =                        \
                    *(GLOBAL const TYPE *)(src + from + AT(launch, src, x, y, z)); \
        }                                                                     \
        BARRIER;                                                              \
        for (u32 at = ITEM; at < area; at += GROUP_ITEMS) {                   \
            const u32 y = at & mask1, x = at >> log1 & mask0, z = at >> log01; \
            if (IS_INSIDE(x, y, z))                                           \
                *(GLOBAL TYPE *)(dst + to + AT(launch, dst, x, y, z)) =       \
                    tile[((z << log1) + y) * (mask0 + 2) + x];                \
        }                                                                     \
    }

COPY(copy1, u8)
COPY(copy2, u16)
COPY(copy4, u32)
COPY(copy8, u64)
COPY(copy16, u128)

TURN(turn1, u8, 4096)
TURN(turn2, u16, 4096)
TURN(turn4, u32, 1024)
TURN(turn8, u64, 1024)
TURN(turn16, u128, 256)
