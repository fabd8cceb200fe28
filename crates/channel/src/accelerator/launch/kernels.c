/* Kernels that convert layouts on a device. What stands in front of this text defines
 *
 *   KERNEL             what makes a function a kernel of groups of GROUP_ITEMS work items
 *   GLOBAL, LOCAL      memory of the device, and memory of a group
 *   GROUP, ITEM        the number of this group, and that of this work item in it
 *   BARRIER            waits for all work items of the group
 *   UNROLL             asks for the loop behind it, whose count is constant, to be unrolled
 *   u8, u16, u32, u64  unsigned integers of so many bits; i64; and u128, of 16 bytes and aligned so
 *
 * A launch is a grid of groups. Each takes a tile of the first three loops, at a turn of the others
 * and at a start; its work items take the elements of the tile in turn, or words of several.
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
    u32 words;   /* sides on which a turned tile is moved by words: 1 for src, 2 for dst, or both */
} Launch;

/* The tile of this group: where it starts, how far the loops still go, and how long its sides are.
 * Most divisions are left out, since each takes as long as many of the other steps. */
#define FIND_TILE(launch)                                                     \
    i64 from = 0, to = 0;                                                     \
    u32 left[3];                                                              \
    u32 group = GROUP;                                                        \
    for (u32 n = 0; n < launch.rank; n++) {                                   \
        const u32 tiles = launch.loops[n].tiles;                              \
        const u32 over = tiles == 1 ? group : group < tiles ? 0 : group / tiles; \
        const u32 turn = (group - over * tiles) << launch.loops[n].log2;      \
        group = over;                                                         \
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

/* Reads the tile along the first loop, by words or by elements (then WORD is TYPE). All that an item
 * reads is on its way before it waits for the first of it; what lies outside has no value, and is never
 * written. ALL is 1 where a tile of AREA has nothing outside, and nothing is compared then. */
#define READ(WORD, TYPE, AREA, ALL)                                           \
    {                                                                         \
        enum { EACH = sizeof(WORD) / sizeof(TYPE), TURNS = AREA / EACH / GROUP_ITEMS }; \
        union {                                                               \
            WORD word;                                                        \
            TYPE elements[EACH];                                              \
        } values[TURNS];                                                      \
        UNROLL for (u32 n = 0; n < TURNS; n++) {                              \
            const u32 at = (ITEM + n * GROUP_ITEMS) * EACH;                   \
            const u32 x = at & mask0, y = at >> log0 & mask1, z = at >> log01; \
            if (ALL || (at < area && IS_INSIDE(x, y, z)))                     \
                values[n].word = *(GLOBAL const WORD *)(src + from + AT(launch, src, x, y, z)); \
        }                                                                     \
        UNROLL for (u32 n = 0; n < TURNS; n++) {                              \
            const u32 at = (ITEM + n * GROUP_ITEMS) * EACH;                   \
            const u32 place = (at >> log0) * row + (at & mask0);              \
            if (ALL || at < area) {                                           \
                UNROLL for (u32 k = 0; k < EACH; k++)                         \
                    tile[place + k] = values[n].elements[k];                  \
            }                                                                 \
        }                                                                     \
    }

/* Writes the tile along the second loop. */
#define WRITE(WORD, TYPE, AREA, ALL)                                          \
    {                                                                         \
        enum { EACH = sizeof(WORD) / sizeof(TYPE), TURNS = AREA / EACH / GROUP_ITEMS }; \
        UNROLL for (u32 n = 0; n < TURNS; n++) {                              \
            const u32 at = (ITEM + n * GROUP_ITEMS) * EACH;                   \
            const u32 y = at & mask1, x = at >> log1 & mask0, z = at >> log01; \
            const u32 place = ((z << log1) + y) * row + x;                    \
            if (ALL || (at < area && IS_INSIDE(x, y, z))) {                   \
                union {                                                       \
                    WORD word;                                                \
                    TYPE elements[EACH];                                      \
                } value;                                                      \
                UNROLL for (u32 k = 0; k < EACH; k++)                         \
                    value.elements[k] = tile[place + k * row];                \
                *(GLOBAL WORD *)(dst + to + AT(launch, dst, x, y, z)) = value.word; \
            }                                                                 \
        }                                                                     \
    }

/* READ or WRITE as the tile and its side allow. */
#define MOVE(HOW, WORD, TYPE, AREA, BY_WORDS)                                 \
    if (BY_WORDS) {                                                           \
        if (is_whole) HOW(WORD, TYPE, AREA, 1) else HOW(WORD, TYPE, AREA, 0)  \
    } else {                                                                  \
        if (is_whole) HOW(TYPE, TYPE, AREA, 1) else HOW(TYPE, TYPE, AREA, 0)  \
    }

/* By way of the group's memory. A row there is one element longer than the tile's, so that a column
 * doesn't lie in one bank. */
#define TURN(NAME, TYPE, WORD, AREA)                                          \
    KERNEL NAME(GLOBAL const u8 *src, GLOBAL u8 *dst, const Launch launch)    \
    {                                                                         \
        LOCAL TYPE tile[AREA + AREA / 2];                                     \
        FIND_TILE(launch);                                                    \
        const u32 row = mask0 + 2;                                            \
        const u32 is_whole = area == AREA && IS_INSIDE(mask0, mask1, (area - 1) >> log01); \
        MOVE(READ, WORD, TYPE, AREA, launch.words & 1)                        \
        BARRIER;                                                              \
        MOVE(WRITE, WORD, TYPE, AREA, launch.words & 2)                       \
    }

COPY(copy1, u8)
COPY(copy2, u16)
COPY(copy4, u32)
COPY(copy8, u64)
COPY(copy16, u128)

TURN(turn1, u8, u64, 4096)
TURN(turn2, u16, u64, 4096)
TURN(turn4, u32, u128, 4096)
TURN(turn8, u64, u128, 1024)
TURN(turn16, u128, u128, 1024)
