/* lua_front.h -- what the Lua files of the compiler share: one Front a model
 * or plan that is being read. */
#ifndef DPC_LUA_FRONT_H
#define DPC_LUA_FRONT_H

#include "compiler/lua.h"
#include <lauxlib.h>
#include <lualib.h>

/* A file of Lua text that was run. */
typedef struct Source {
    const char *name, *path;              /* as messages say it; as it opens */
    bool library;                         /* HOME/models/NAME.lua: not the
                                             user's own line */
} Source;

/* A leaf of the unit: one for all entries that name it. */
typedef struct UnitLeaf {
    Op op;
    const char *name, *loc, *scope;
    Type type;
    Attr attr;
    int init;                             /* reference of its init; LUA_NOREF */
    Graph *init_graph;                    /* that an init value belongs to */
    Ref set;                              /* its value in "init"; NONE yet */
    bool busy;                            /* set is being made */
} UnitLeaf;

/* A value of the entry that should hide something, and where it was said. */
typedef struct Mask { Ref ref; const char *loc; } Mask;

/* A value under a name; base: before "#2". */
typedef struct Tap { const char *name, *base; Ref ref; } Tap;

typedef struct Front {
    Arena *a;
    Model *model;
    const char *home, *dir;               /* dir: the model's folder */
    const char *shelf;                    /* what is dpc's own, below home */
    Source *source;
    uint32_t nsource, sourcecap;
    /* the graph being traced */
    Graph *g;                             /* NULL outside of an entry */
    const char *scope, *line;             /* line: of a leaf whose init is made
                                             outside of any Lua; NULL */
    Ref *param;                           /* trainable ones, as created */
    uint32_t nparam, paramcap;
    Mask *mask;
    uint32_t nmask, maskcap;
    const char *dump;                     /* patterns of taps; NULL */
    Tap *tap;                             /* of the entry */
    uint32_t ntap, tapcap;
    const char **seen;                    /* names of taps of all entries */
    uint32_t nseen, seencap, ndumped;     /* ndumped: that became outs */
    int nodes;                            /* of all entries */
    UnitLeaf *leaf;
    uint32_t nleaf, leafcap;
    int64_t nrandom;
    const char *draws;                    /* normal draws are inputs of that
                                             name and a number; NULL */
    int ndraw;
    bool filled;                          /* params are given: their init is
                                             read by none */
    const char *flag, *asked;             /* "-D" of a "model" */
    const char *const *define;
    int ndefine;
    bool *used;                           /* a define that some option read */
    const char *config;                   /* --config; NULL */
    bool config_read;
    /* limits */
    size_t bytes, cap;                    /* held by Lua */
    double steps, limit;                  /* instructions run */
    bool dead;                            /* a limit was hit: no pcall helps */
    lua_State *state;
    const char *starved;                  /* line where memory ended; NULL */
} Front;

/* ---- lua_sandbox.c, lua_string.c ---- */

/* A state that can reach nothing but the whitelist; never NULL. */
lua_State *sandbox_new(Front *);
Front *front_of(lua_State *);
void sandbox_strings(lua_State *);        /* env on top: string, table, pairs */
/* Push the text's function; err where it is no Lua. */
void sandbox_load(lua_State *, const char *name, const char *path,
                  bool library);
/* All of a file, and its bytes; err where it cannot be read. */
const char *sandbox_read(Front *, const char *path, const char *name,
                         size_t *size);
/* Call as lua_call does; err with what it raised. */
void sandbox_call(lua_State *, int nargs, int nresults);
int sandbox_tostring(lua_State *);        /* no addresses */

/* ---- lua_error.c ---- */

void error_open(lua_State *);
const char *user_loc(lua_State *);        /* the user's innermost line */
/* Raise at that line; the library's line, if another, becomes a note. */
_Noreturn void fail(lua_State *, const char *, ...)
    __attribute__((format(printf, 2, 3)));
_Noreturn void fail_at(lua_State *, const char *loc, const char *, ...)
    __attribute__((format(printf, 3, 4)));
/* At the user's line, with an exit code of design 11. */
_Noreturn void fail_code(lua_State *, int code, const char *text);
int error_handler(lua_State *);           /* of lua_pcall */
_Noreturn void error_throw(lua_State *);  /* what is on top becomes an err */
/* Call fn, which may err but must not touch Lua; raises what it erred. */
void guarded(lua_State *, void (*fn)(void *), void *);
/* The same outside of a protected call: closes the state, and err. */
void guarded_or_close(lua_State *, void (*fn)(void *), void *arg);

/* ---- lua_value.c ---- */

void value_open(lua_State *);             /* make the metatable */
void value_push(lua_State *, Ref);
bool value_is(lua_State *, int i);
Ref value_check(lua_State *, int i, const char *what);
/* A value or number at i, as a value of that shape; `what` for messages. */
Ref value_fit(lua_State *, int i, const Type *, const char *what);
Ref node_new(lua_State *, Op, const Attr *, const Ref *in, int nin);
Ref node_typed(lua_State *, Op, const Attr *, Type, const char *name);
Graph *front_graph(lua_State *, const char *what);
const char *type_show(lua_State *, const Type *);

/* ---- lua_model.c ---- */

/* A state for the model at `path`, with the table dpc; its Front. */
lua_State *model_state(const char *path, const ModelOptions *, Arena *);
void entry_begin(lua_State *, const char *name);    /* a new graph */
/* Names of the keys of the table at i, sorted. */
const char **names_sorted(lua_State *, int i, const char *what, int *n);
/* The values of the table on top, popped, become outs of the graph. */
void outs_read(lua_State *, const char *entry);

/* ---- lua_leaf.c ---- */

void leaf_open(lua_State *);              /* the table dpc, on top */
const char *name_check(lua_State *, int i, const char *what);
void leaf_entry(lua_State *);             /* forget the last entry's leaves */
Type dims_check(lua_State *, int i, DType, const char *what);
void leaf_input_push(lua_State *, const char *name, Type);
UnitLeaf *leaf_find(lua_State *, const char *name);       /* NULL */
Ref leaf_node(lua_State *, const UnitLeaf *);     /* in this entry */
/* lua_init.c: put `set LEAF = init` for every param and state into the
 * current graph. */
void leaf_init_all(lua_State *);
DType dtype_check(lua_State *, int i, DType otherwise, const char *what);

/* ---- lua_reach.c ---- */

int values_reached(lua_State *);          /* dpc.reached(loss, list) -> list */
int mask_declare(lua_State *);            /* dpc.mask(value) -> value */
void masks_check(lua_State *);            /* of the entry; raises at a line */

/* ---- lua_tap.c ---- */

bool tap_wanted(const char *list, const char *name);
void taps_begin(Front *);                 /* of a new entry */
void tap_results(lua_State *, int first); /* from there on: what the open scope
                                             returns */
int tap_named(lua_State *);               /* dpc.tap(name, value) -> value */
void taps_append(lua_State *);            /* what --dump names becomes outs */
void taps_check(lua_State *, const char *loc);   /* fails if nothing did */

/* ---- lua_option.c ---- */

/* err (2) for a define that is no NAME=VALUE. */
void defines_check(const char *flag, const char *const *define, int n);
/* option(name, default, doc, wanted) -> the value that a define gives, or
 * default.  wanted: the least number, a list of texts, or a function of the
 * value that returns what is wrong with it. */
int option_ask(lua_State *);
void options_used(lua_State *);           /* fails for one nobody asked for */

/* ---- lua_view.c ---- */

/* Push the nodes of an entry as read-only data (docs/plans.md). */
void nodes_push(lua_State *, const Graph *);

/* ---- lua_config.c, lua_json.c ---- */

void config_open(lua_State *);            /* into the table dpc, on top */
const char *json_text(lua_State *, int i, Arena *);

#endif
