/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_OPTIM_OPTIM_H
#define TRL_OPTIM_OPTIM_H
/*
 * Optimisers over the parameter table: state slabs with the parameters' own offsets, the global gradient norm, clipping, the step.
 * All arithmetic goes through the backend's ops; nothing is allocated after trl_optim_new. One owner. A step:
 *
 *   (gradients summed and exchanged) -> trl_optim_grad_norm -> coef = trl_optim_clip_coef -> trl_optim_step
 *   -> trl_model_weights_changed(model, true)     (params->copy is already refreshed)
 *
 * fp16: struct trl_scaler; grad_scale = 1/scale everywhere, and the step is left out when the norm is not finite.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "model/model.h"
#include "tensor/backend.h"

/* Every name of transformers' OptimizerNames is known: supported, or refused with the reason. */
enum trl_optim_kind {
    TRL_OPTIM_ADAMW,
    TRL_OPTIM_ADAFACTOR,
    TRL_OPTIM_SGD,
    TRL_OPTIM_LION,
    TRL_OPTIM_MAX_
};

struct trl_optim_config {
    const char *name; /* TrainingArguments.optim */
    const char *args; /* optim_args "key=value,key=value", or NULL */
    double beta1, beta2, eps, weight_decay; /* adam_beta1, adam_beta2, adam_epsilon, weight_decay */
    double max_grad_norm;                   /* <= 0: no clipping */
};

/* Name, arguments and ranges alone (before anything is loaded). */
int trl_optim_check(const struct trl_optim_config *cfg, struct trl_err *err);
/* Bytes of state and scratch that trl_optim_new will take. Needs items, dtype and slab_elems of `params`, no slabs. */
int trl_optim_plan(const struct trl_optim_config *cfg, const struct trl_params *params, size_t *ret_bytes,
    struct trl_err *err);

struct trl_optim;
/* `params` is borrowed and must be prepared for training (grads). */
int trl_optim_new(struct trl_optim **ret, struct trl_backend *be, struct trl_params *params,
    const struct trl_optim_config *cfg, struct trl_err *err);
void trl_optim_free(struct trl_optim *o);

/* L2 norm of grad_scale * all gradients, rounded as torch does (to the gradients' type). Inf or NaN when any gradient is. */
int trl_optim_grad_norm(struct trl_optim *o, double grad_scale, double *ret, struct trl_err *err);
/* min(1, max_grad_norm / (norm + 1e-6)), 1 without clipping */
double trl_optim_clip_coef(const struct trl_optim *o, double norm);
/* One step with gradients grad_scale * g (clip coefficient times 1/loss scale). Gradients are not cleared. */
int trl_optim_step(struct trl_optim *o, double lr, double grad_scale, struct trl_err *err);

int64_t trl_optim_steps(const struct trl_optim *o); /* done so far */

/* State in one safetensors file: tensors "exp_avg.<parameter>", "exp_avg_sq.<parameter>" ... in the parameters' shapes, so that
 * any number of ranks can read it; step count and names in the metadata. Loading checks names, shapes and optimiser. */
int trl_optim_save(struct trl_optim *o, const char *path, struct trl_err *err);
int trl_optim_load(struct trl_optim *o, const char *path, struct trl_err *err);

/* Dynamic loss scale of fp16, as torch.amp.GradScaler. */
struct trl_scaler {
    bool enabled;
    double scale;      /* 65536 at the start */
    int64_t good_steps; /* since the last change; at 2000 the scale doubles */
};
void trl_scaler_init(struct trl_scaler *s, bool enabled);
/* The factor for the loss before backward (1 when off). */
double trl_scaler_get(const struct trl_scaler *s);
/* After a step: found_inf halves the scale (that step must be skipped). */
void trl_scaler_update(struct trl_scaler *s, bool found_inf);
json_t *trl_scaler_state(const struct trl_scaler *s); /* NULL: out of memory */
int trl_scaler_set_state(struct trl_scaler *s, const json_t *state, struct trl_err *err);

#endif
