/* One of two MPI ranks that does what it is told, line by line, and sleeps in between.
 *
 * usage: mpi DIRECTORY BYTES allocated|created
 *
 * Rank r runs on core r, reads DIRECTORY/r.in and answers each line with one on DIRECTORY/r.out. It
 * has BYTES of its own memory, and as many in a window that the other reaches. Outside of MPI it
 * waits in a read, so that it takes no time while others are measured. scripts/ranks/pairs.py says
 * what the lines are. The window's memory is MPI's own, or this program's: Open MPI shares the former
 * between ranks of one machine whatever it was told to go by.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PEER = 1, ROOT = 0, TAG = 7, WINDOW_OF_SENDS = 64, PAGE = 4096 };

/* What is done over and over: bytes of payload, in blocks. */
struct work {
    char kind[16];
    long bytes, block;
};

static int rank;
static char *own, *shared;
static long room;
static MPI_Win win;
static struct work work;
static MPI_Datatype src_type, dst_type;
static int src_count, dst_count;
static FILE *answers;

static void fail(const char *why)
{
    fprintf(answers, "{\"error\": \"%s\"}\n", why);
    fflush(answers);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static FILE *open_in(const char *directory, const char *end, const char *mode)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%d.%s", directory, rank, end);
    FILE *file = fopen(path, mode);
    if (!file) {
        perror(path);
        exit(1);
    }
    return file;
}

/* Fills `to` from a file, or a file from `to`. */
static void transfer(const char *path, char *to, long bytes, int is_load)
{
    FILE *file = fopen(path, is_load ? "rb" : "wb");
    if (!file)
        fail("a file can't be opened");
    size_t done = is_load ? fread(to, 1, bytes, file) : fwrite(to, 1, bytes, file);
    if (fclose(file) || done != (size_t)bytes)
        fail("a file is not as long as it should be");
}

/* How many of a type are all blocks: these lie one after the other where it says `plain`, every
 * other where `every`; else it names a file of places, counted in blocks. */
static int blocks(const char *how, MPI_Datatype *of)
{
    MPI_Datatype type;
    int count = work.bytes / work.block, block = work.block;
    if (!strcmp(how, "plain")) {
        *of = MPI_BYTE;
        return work.bytes;
    }
    if (!strcmp(how, "every")) {
        MPI_Type_vector(count, block, 2 * block, MPI_BYTE, &type);
    } else {
        MPI_Aint *places = malloc(count * sizeof *places);
        transfer(how, (char *)places, count * sizeof *places, 1);
        for (int i = 0; i < count; i++)
            places[i] *= block;
        MPI_Type_create_hindexed_block(count, block, places, MPI_BYTE, &type);
        free(places);
    }
    MPI_Type_commit(&type);
    *of = type;
    return 1;
}

static void forget(MPI_Datatype *type)
{
    if (*type != MPI_BYTE)
        MPI_Type_free(type);
}

static void set_case(const char *line)
{
    char src[4096], dst[4096];
    forget(&src_type);
    forget(&dst_type);
    int read = sscanf(line, "case %15s %ld %ld %4095s %4095s", work.kind, &work.bytes, &work.block,
                      src, dst);
    if (read != 5 || work.bytes > room || work.block < 1)
        fail("no case");
    src_count = blocks(src, &src_type);
    dst_count = blocks(dst, &dst_type);
}

static void put(void)
{
    MPI_Put(own, src_count, src_type, PEER, 0, dst_count, dst_type, win);
}

/* A get goes the other way: the peer has the source. */
static void get(void)
{
    MPI_Get(own, dst_count, dst_type, PEER, 0, src_count, src_type, win);
}

static void one_sided(long times, void (*move)(void), int flushes_each)
{
    if (rank != ROOT)
        return;
    for (long i = 0; i < times; i++) {
        move();
        if (flushes_each)
            MPI_Win_flush(PEER, win);
    }
    MPI_Win_flush(PEER, win);
}

static void trips(long times)
{
    for (long i = 0; i < times; i++) {
        if (rank == ROOT) {
            MPI_Send(own, work.bytes, MPI_BYTE, PEER, TAG, MPI_COMM_WORLD);
            MPI_Recv(own, work.bytes, MPI_BYTE, PEER, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(shared, work.bytes, MPI_BYTE, ROOT, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(shared, work.bytes, MPI_BYTE, ROOT, TAG, MPI_COMM_WORLD);
        }
    }
}

/* The receiver says when it has all. */
static void acknowledge(void)
{
    if (rank == ROOT)
        MPI_Recv(NULL, 0, MPI_BYTE, PEER, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(NULL, 0, MPI_BYTE, ROOT, TAG, MPI_COMM_WORLD);
}

static void flood(long times)
{
    MPI_Request open[WINDOW_OF_SENDS];
    while (times > 0) {
        int some = times < WINDOW_OF_SENDS ? times : WINDOW_OF_SENDS;
        for (int i = 0; i < some; i++) {
            if (rank == ROOT)
                MPI_Isend(own, work.bytes, MPI_BYTE, PEER, TAG, MPI_COMM_WORLD, &open[i]);
            else
                MPI_Irecv(shared, work.bytes, MPI_BYTE, ROOT, TAG, MPI_COMM_WORLD, &open[i]);
        }
        MPI_Waitall(some, open, MPI_STATUSES_IGNORE);
        times -= some;
    }
    acknowledge();
}

static void send(long times)
{
    for (long i = 0; i < times; i++) {
        if (rank == ROOT)
            MPI_Send(own, src_count, src_type, PEER, TAG, MPI_COMM_WORLD);
        else
            MPI_Recv(shared, dst_count, dst_type, ROOT, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        acknowledge();
    }
}

static void run(long times)
{
    if (!strcmp(work.kind, "put"))
        one_sided(times, put, 1);
    else if (!strcmp(work.kind, "get"))
        one_sided(times, get, 1);
    else if (!strcmp(work.kind, "puts"))
        one_sided(times, put, 0);
    else if (!strcmp(work.kind, "trip"))
        trips(times);
    else if (!strcmp(work.kind, "flood"))
        flood(times);
    else if (!strcmp(work.kind, "send"))
        send(times);
    else
        fail("no such case");
}

static void timed(long times)
{
    /* Once off the clock: others have been at the caches. */
    run(1);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now();
    run(times);
    double seconds = now() - start;
    MPI_Barrier(MPI_COMM_WORLD);
    fprintf(answers, "{\"seconds\": %.9g}\n", seconds);
}

/* `load own PATH`, `dump shared PATH`: the first `work.bytes` or, of what has gaps, all of it. */
static void move_file(const char *line)
{
    char verb[8], which[8], path[4096];
    long bytes;
    if (sscanf(line, "%7s %7s %ld %4095s", verb, which, &bytes, path) != 4 || bytes > room)
        fail("no file");
    transfer(path, strcmp(which, "own") ? shared : own, bytes, !strcmp(verb, "load"));
    /* What others put is seen by loads, and what is loaded here by others. */
    MPI_Win_sync(win);
    fprintf(answers, "{}\n");
}

static void serve(FILE *commands)
{
    char line[16384];
    while (fgets(line, sizeof line, commands)) {
        if (!strncmp(line, "quit", 4))
            return;
        if (!strncmp(line, "run ", 4)) {
            timed(atol(line + 4));
        } else if (!strncmp(line, "once", 4)) {
            run(1);
            MPI_Barrier(MPI_COMM_WORLD);
            fprintf(answers, "{}\n");
        } else if (!strncmp(line, "case ", 5)) {
            set_case(line);
            fprintf(answers, "{}\n");
        } else {
            move_file(line);
        }
        fflush(answers);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 4)
        return 2;
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(rank, &core);
    sched_setaffinity(0, sizeof core, &core);
    room = atol(argv[2]);
    src_type = dst_type = MPI_BYTE;
    /* Room for bytes that start with a page, as our own ranks' and those in Python do. */
    char *before;
    MPI_Alloc_mem(room + PAGE, MPI_INFO_NULL, &before);
    own = before + PAGE - (uintptr_t)before % PAGE;
    memset(own, 0, room);
    if (strcmp(argv[3], "created")) {
        MPI_Win_allocate(room, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &shared, &win);
    } else {
        MPI_Alloc_mem(room, MPI_INFO_NULL, &shared);
        MPI_Win_create(shared, room, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    }
    memset(shared, 0, room);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    /* Who sleeps makes no progress, and the other may still wait for a connection. */
    for (double end = MPI_Wtime() + 0.2; MPI_Wtime() < end;) {
        int any;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &any, MPI_STATUS_IGNORE);
    }
    FILE *commands = open_in(argv[1], "in", "r");
    answers = open_in(argv[1], "out", "w");
    fprintf(answers, "{}\n");
    fflush(answers);
    serve(commands);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    MPI_Free_mem(before);
    MPI_Finalize();
    return 0;
}
