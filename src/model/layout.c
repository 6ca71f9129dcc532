/* SPDX-License-Identifier: Apache-2.0 */
#include "model/layout.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/alloc.h"
#include "model/family.h"

enum { PARAM_ALIGN = 64 }; /* elements */

static int64_t aligned(int64_t n)
{
    return (n + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
}

int trl__layout_add(struct trl_layout *l, enum trl_param_role role, int layer, int64_t d0,
    int64_t d1, const char *fmt, ...)
{
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof(name), fmt, ap);
    va_end(ap);
    struct trl_params *p = l->params;
    void *items = p->items;
    size_t cap = (size_t)l->cap;
    char *copy = l->failed ? NULL : trl_strdup(name);
    if (!copy || !trl_grow(&items, &cap, (size_t)p->n + 1, sizeof(p->items[0]))) {
        trl_free(copy);
        l->failed = true;
        return -1;
    }
    p->items = items;
    l->cap = (int)cap;
    p->items[p->n] = (struct trl_param){.name = copy,
        .shape = {d0, d1},
        .ndim = d1 ? 2 : 1,
        .numel = d1 ? d0 * d1 : d0,
        .role = role,
        .layer = layer,
        .trainable = true,
        .offset = -1,
        .decay = role != TRL_PARAM_NORM && role != TRL_PARAM_BIAS,
        .conv1d = role == TRL_PARAM_LINEAR && layer >= 0 && l->c->family->conv1d};
    return p->n++;
}

static void place(struct trl_params *p, int index)
{
    if (index < 0 || p->items[index].offset >= 0)
        return;
    p->items[index].offset = p->slab_elems;
    p->slab_elems += aligned(p->items[index].numel);
}

/* The parts of `y` one after the other: all weights, then all biases. */
static void place_linear(struct trl_params *p, const struct trl_linear *y)
{
    for (int k = 0; k < y->n; k++)
        place(p, y->w[k]);
    for (int k = 0; k < y->n; k++)
        place(p, y->b[k]);
}

/* Is each of these parameters followed by the next without a gap? */
static bool adjacent(const struct trl_params *p, const int *index, int n)
{
    for (int k = 1; k < n; k++)
        if (p->items[index[k]].offset !=
            p->items[index[k - 1]].offset + p->items[index[k - 1]].numel)
            return false;
    return true;
}

static void finish_linear(struct trl_params *p, struct trl_linear *y)
{
    y->total = 0;
    for (int k = 0; k < y->n; k++) {
        const struct trl_param *w = &p->items[y->w[k]];
        y->in = w->conv1d ? w->shape[0] : w->shape[1];
        y->out[k] = w->conv1d ? w->shape[1] : w->shape[0];
        y->total += y->out[k];
    }
    y->joined = adjacent(p, y->w, y->n) && (y->b[0] < 0 || adjacent(p, y->b, y->n));
}

static void assign_offsets(struct trl_layout *l)
{
    struct trl_params *p = l->params;
    int last_layer = -1;
    for (int i = 0; i < p->n; i++) {
        int layer = p->items[i].layer;
        /* the joined products of a layer are placed when the first of their weights comes */
        if (layer >= 0) {
            struct trl_layer *y = &l->layers[layer];
            if (i == y->qkv.w[0])
                place_linear(p, &y->qkv);
            if (i == y->up.w[0])
                place_linear(p, &y->up);
            last_layer = layer;
        }
        place(p, i);
    }
    for (int i = 0; i <= last_layer; i++) {
        finish_linear(p, &l->layers[i].qkv);
        finish_linear(p, &l->layers[i].o);
        finish_linear(p, &l->layers[i].up);
        finish_linear(p, &l->layers[i].down);
    }
}

/* Backward finishes the head and the last norm first, then layer by layer from the last, then the
 * embeddings. */
static void assign_order(struct trl_layout *l)
{
    for (int i = 0; i < l->params->n; i++) {
        struct trl_param *p = &l->params->items[i];
        p->ready_order = p->layer >= 0 ? (int)l->c->layers - p->layer : 0;
        if (i == l->embed || i == l->positions)
            p->ready_order = (int)l->c->layers + 1;
    }
}

static const struct trl_linear no_linear = {.w = {-1, -1, -1}, .b = {-1, -1, -1}};
static const struct trl_norm no_norm = {-1, -1};

int trl__layout_build(struct trl_layout *l, const struct trl_model_config *c,
    struct trl_params *params, struct trl_err *err)
{
    *params = (struct trl_params){0};
    *l = (struct trl_layout){
        .c = c, .params = params, .embed = -1, .positions = -1, .head = -1, .final_norm = no_norm};
    l->layers = trl_calloc((size_t)c->layers, sizeof(l->layers[0]));
    if (!l->layers)
        return trl_fail_nomem(err, (size_t)c->layers * sizeof(l->layers[0]), "a table of layers");
    for (int64_t i = 0; i < c->layers; i++)
        l->layers[i] = (struct trl_layer){no_linear, no_linear, no_linear, no_linear, no_norm,
            no_norm, no_norm, no_norm, no_norm, no_norm};
    c->family->layout(l);
    if (l->failed) {
        trl__layout_release(l);
        return trl_fail_nomem(err, 0, "a table of parameters");
    }
    assign_offsets(l);
    assign_order(l);
    for (int i = 0; i < params->n; i++)
        params->numel += params->items[i].numel;
    return 0;
}

void trl__layout_release(struct trl_layout *l)
{
    for (int i = 0; l->params && i < l->params->n; i++)
        trl_free(l->params->items[i].name);
    if (l->params) {
        trl_free(l->params->items);
        *l->params = (struct trl_params){0};
    }
    trl_free(l->layers);
    *l = (struct trl_layout){0};
}
