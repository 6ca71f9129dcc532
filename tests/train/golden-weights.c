/* SPDX-License-Identifier: Apache-2.0 */
#include "golden-weights.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/str.h"
#include "tensor/dtype.h"

/* An own small reader: the program's must not be judged by itself. */
static int tensor_sums(const struct trl_map *m, const json_t *head, size_t base, const char *name, double *sum, double *l2)
{
    const json_t *t = json_object_get(head, name), *offsets = json_object_get(t, "data_offsets");
    const char *dtype = json_string_value(json_object_get(t, "dtype"));
    enum trl_dtype type;
    if (!dtype || trl_dtype_find(dtype, &type) != 0)
        return -1;
    size_t begin = base + (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t end = base + (size_t)json_integer_value(json_array_get(offsets, 1));
    if (end > m->len || begin > end)
        return -1;
    double s = 0, q = 0;
    for (size_t i = 0; i < (end - begin) / trl_dtype_size(type); i++) {
        double v = trl_dtype_load(type, m->data + begin, i);
        s += v;
        q += v * v;
    }
    *sum = s;
    *l2 = sqrt(q);
    return 0;
}

int trl_golden_compare_weights(const char *dir, const char *prefix, const char *out, double wide)
{
    struct trl_err err = {0};
    char *rp = trl_asprintf("%s/%sresult.json", dir, prefix), *mp = trl_path_join(out, "model.safetensors");
    json_error_t je;
    json_t *result = json_load_file(rp, 0, &je), *head = NULL;
    struct trl_map m = {0};
    int bad = 0;
    uint64_t n = 0;
    if (!result || trl_map_open(&m, mp, &err) || m.len < 8) {
        printf("# %s\n", result ? err.text : je.text);
        bad = 1;
    } else {
        memcpy(&n, m.data, 8);
        head = n <= m.len - 8 ? json_loadb((const char *)m.data + 8, n, 0, &je) : NULL;
    }
    const char *name;
    json_t *w;
    json_object_foreach(json_object_get(result, "weights"), name, w)
    {
        /* the key part has no gradient in exact arithmetic: Adam steps on rounding noise */
        if (bad || trl_ends_with(name, "c_attn.bias"))
            continue;
        double sum = 0, l2 = 0, ws = json_number_value(json_object_get(w, "sum")), wl = json_number_value(json_object_get(w, "l2"));
        if (tensor_sums(&m, head, 8 + n, name, &sum, &l2)) {
            printf("# weights: no %s\n", name);
            bad++;
        } else if (!(fabs(l2 - wl) <= 2e-4 * wide * (1 + wl) && fabs(sum - ws) <= 2e-3 * wide * (1 + wl))) {
            printf("# weights: %s sum %.9g l2 %.9g instead of %.9g %.9g\n", name, sum, l2, ws, wl);
            bad++;
        }
    }
    json_decref(result);
    json_decref(head);
    trl_map_close(&m);
    trl_free(rp);
    trl_free(mp);
    return bad;
}
