/* What of PMIx ranks use, over files in the directory FAKE_DIR, for FAKE_SIZE processes, FAKE_LOCAL of them
   on this node. FAKE_FAULT names what goes wrong. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    char nspace[256];
    uint32_t rank;
} proc_t;

typedef struct {
    uint16_t type;
    union {
        bool flag;
        int integer;
        uint32_t number;
        char *text;
        void *rest[3];
    } data;
} value_t;

typedef struct {
    char key[512];
    uint32_t flags;
    value_t value;
} info_t;

enum { BOOL = 1, STRING = 3, INT = 6, UINT32 = 14 };
enum { WRONG = -1, NOT_FOUND = -46, EVERYBODY = 3 };

static int begun, fences;
static char staged_key[512], staged_text[512];

static uint32_t told(const char *name) {
    return (uint32_t)strtoul(getenv(name), NULL, 10);
}

static bool fault(const char *name) {
    const char *fault = getenv("FAKE_FAULT");
    return fault && !strcmp(fault, name);
}

static void path(char *to, const char *name, uint32_t number) {
    snprintf(to, 1024, "%s/%s.%u", getenv("FAKE_DIR"), name, number);
}

static void leave(const char *name, uint32_t number, const char *text) {
    char part[1024], whole[1024];
    path(part, "part", told("PMIX_RANK"));
    path(whole, name, number);
    FILE *file = fopen(part, "w");
    fputs(text, file);
    fclose(file);
    rename(part, whole);
}

const char *PMIx_Get_version(void) {
    return fault("version") ? "PMIx 2.2.5" : "OpenPMIx 5.0.0 (fake)";
}

const char *PMIx_Error_string(int status) {
    return status == NOT_FOUND ? "NOT-FOUND" : "FAKE-ERROR";
}

int PMIx_Init(proc_t *me, const info_t *info, size_t count) {
    if (info || count || begun++) return WRONG;
    strcpy(me->nspace, getenv("PMIX_NAMESPACE"));
    me->rank = told("PMIX_RANK");
    return 0;
}

int PMIx_Finalize(const info_t *info, size_t count) {
    if (info || count || begun-- != 1) return WRONG;
    leave("ended", told("PMIX_RANK"), "");
    return 0;
}

int PMIx_Put(uint8_t scope, const char *key, const value_t *value) {
    if (scope != EVERYBODY || value->type != STRING) return WRONG;
    strcpy(staged_key, key);
    strcpy(staged_text, value->data.text);
    return 0;
}

int PMIx_Commit(void) {
    if (!fault("commit")) leave(staged_key, told("PMIX_RANK"), staged_text);
    return 0;
}

int PMIx_Fence(const proc_t *procs, size_t count, const info_t *info, size_t infos) {
    char name[64], mark[1024];
    if (procs || count || infos != 2) return WRONG;
    if (strcmp(info[0].key, "pmix.collect") || info[0].value.type != BOOL || !info[0].value.data.flag) return WRONG;
    if (strcmp(info[1].key, "pmix.timeout") || info[1].value.type != INT || info[1].value.data.integer != 60) return WRONG;
    if (fault("fence")) return WRONG;
    snprintf(name, sizeof name, "fence-%d", fences++);
    leave(name, told("PMIX_RANK"), "");
    for (uint32_t rank = 0; rank < told("FAKE_SIZE"); rank++)
        for (path(mark, name, rank); access(mark, F_OK); usleep(1000)) {}
    return 0;
}

int PMIx_Get(const proc_t *of, const char *key, const info_t *info, size_t infos, value_t **got) {
    bool job = of->rank == UINT32_MAX - 1;
    if (info || infos || strcmp(of->nspace, getenv("PMIX_NAMESPACE"))) return WRONG;
    value_t *value = calloc(1, sizeof *value);
    value->type = UINT32;
    *got = value;
    if (job && !strcmp(key, "pmix.job.size")) {
        value->data.number = told("FAKE_SIZE");
        if (fault("kind")) value->type = INT;
        return 0;
    }
    if (job && !strcmp(key, "pmix.local.size") && !fault("local")) {
        value->data.number = told("FAKE_LOCAL");
        return 0;
    }
    char from[1024], text[512] = "";
    path(from, key, of->rank);
    FILE *file = job ? NULL : fopen(from, "r");
    if (!file) {
        free(value);
        *got = NULL;
        return NOT_FOUND;
    }
    fgets(text, sizeof text, file);
    fclose(file);
    value->type = STRING;
    value->data.text = strdup(text);
    return 0;
}
