/* The kernels on the host. A group has one work item here, which so does all that the items of one do on a
 * device, one after the other. In front of this stands the text of the kernels, and in front of that what
 * host.h defines. */

typedef void Kernel(const u8 *src, u8 *dst, const Launch launch);

static const struct {
    const char *name;
    i64 bytes;
    Kernel *kernel;
} all[] = {
    { "copy1", 1, copy1 },   { "copy2", 2, copy2 }, { "copy4", 4, copy4 }, { "copy8", 8, copy8 },
    { "copy16", 16, copy16 }, { "turn1", 1, turn1 }, { "turn2", 2, turn2 }, { "turn4", 4, turn4 },
    { "turn8", 8, turn8 },   { "turn16", 16, turn16 },
};

/* The number of the kernel called name; -1 where there is none. */
int host_find(const char *name)
{
    for (int n = 0; n < (int)(sizeof all / sizeof *all); n++)
        if (strcmp(all[n].name, name) == 0)
            return n;
    return -1;
}

/* Whether all that a launch touches on a side lies inside so many bytes. */
#define FITS(launch, side, start, element, bytes, fits)                       \
    {                                                                         \
        i64 first = (start).side, last = (start).side;                        \
        for (u32 n = 0; n < (launch)->rank; n++) {                            \
            const i64 way = (launch)->loops[n].side * ((i64)(launch)->loops[n].count - 1); \
            *(way < 0 ? &first : &last) += way;                               \
        }                                                                     \
        (fits) &= first >= 0 && last + (element) <= (bytes);                  \
    }

/* Runs a kernel; returns 0, and does nothing, where it would reach outside. */
int host_run(int which, const u8 *src, i64 src_bytes, u8 *dst, i64 dst_bytes, const Launch *launch,
             u32 groups)
{
    u32 tiles = 1;
    int fits = launch->rank <= 8;
    for (u32 n = 0; fits && n < launch->rank; n++)
        tiles *= launch->loops[n].tiles;
    fits &= groups / tiles <= 32 && groups % tiles == 0;
    for (u32 n = 0; fits && n < groups / tiles; n++) {
        FITS(launch, src, launch->starts[n], all[which].bytes, src_bytes, fits);
        FITS(launch, dst, launch->starts[n], all[which].bytes, dst_bytes, fits);
    }
    for (the_group = 0; fits && the_group < groups; the_group++)
        all[which].kernel(src, dst, *launch);
    return fits;
}
