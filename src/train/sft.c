/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Supervised fine-tuning (TRL's SFTTrainer). Per token t with target y:
 *   nll:  -log p(y) / N          with label smoothing e: (1-e) * nll + e * mean over the vocabulary of -log p / N
 *   dft:  -sg[p(y)] log p(y) / N
 * N = labels that count after the shift, over the accumulation window and (average_tokens_across_devices) the ranks, at least 1.
 */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "train/run.h"
#include "train/trainer.h"

enum sft_sum { SUM_VALID, SUM_ENTROPY, SUM_CORRECT, N_SFT_SUMS };

struct sft_loss {
    bool dft;
    double smoothing;
    float scale; /* gradient of the micro-loss with respect to one token's -log p */
    bool with_mean;
    double sum; /* of per-token losses, before the division by N */
};

/* The loss and its gradient of one chunk follow from its own numbers. */
static void chunk_coef(void *ctx, const struct trl_head_chunk *c)
{
    struct sft_loss *l = ctx;
    for (int64_t i = 0; i < c->count; i++) {
        double logp = c->logp[i];
        if (l->dft) {
            double p = exp(logp);
            l->sum += -p * logp;
            if (c->d_logp)
                c->d_logp[i] = (float)(-p * l->scale);
            continue;
        }
        l->sum += -(1 - l->smoothing) * logp;
        if (c->d_logp)
            c->d_logp[i] = (float)(-(1 - l->smoothing) * l->scale);
        if (l->with_mean) {
            l->sum += -l->smoothing * c->mean_logp[i];
            if (c->d_mean)
                c->d_mean[i] = (float)(-l->smoothing * l->scale);
        }
    }
}

/* Sums of what the head left in the batch's arrays. */
struct token_sums {
    double valid, entropy, correct;
};

static void add_tokens(struct token_sums *s, const struct trl_head_chunk *c)
{
    for (int64_t i = 0; i < c->count; i++) {
        s->valid += 1;
        s->entropy += c->entropy[i];
        s->correct += c->hit[i];
    }
}

struct chunk_ctx {
    struct sft_loss loss;
    struct token_sums sums;
};

static void on_chunk(void *ctx, const struct trl_head_chunk *c)
{
    struct chunk_ctx *x = ctx;
    chunk_coef(&x->loss, c);
    add_tokens(&x->sums, c);
}

static int sft_micro(struct trl_run *run, const struct trl_batch *batch, const struct trl_norm *norm, struct trl_micro *ret,
    struct trl_err *err)
{
    const struct trl_config *cfg = run->cfg;
    double n = norm ? norm->n_items : (double)batch->n_items;
    n = n > 1 ? n : 1;
    struct chunk_ctx x = {0};
    x.loss.dft = strcmp(cfg->loss_type, "dft") == 0;
    x.loss.smoothing = x.loss.dft ? 0 : cfg->label_smoothing_factor;
    x.loss.with_mean = x.loss.smoothing != 0;
    x.loss.scale = norm ? (float)(norm->loss_scale * norm->world / n) : 0;

    struct trl_tokens tokens = {
        .n = batch->n,
        .n_docs = batch->n_docs,
        .ids = batch->ids,
        .positions = batch->positions,
        .doc_start = batch->doc_start,
        .padded_length = batch->padded_len,
    };
    int rc = trl_model_forward(run->model, &tokens, norm != NULL, err);
    if (rc)
        return rc;
    struct trl_head_args head = {
        .targets = batch->targets,
        .want_grad = norm != NULL,
        .want_mean = x.loss.with_mean,
        .coef = on_chunk,
        .coef_ctx = &x,
    };
    rc = trl_model_head(run->model, &head, err);
    if (rc)
        return rc;
    *ret = (struct trl_micro){.loss = x.loss.sum / n * (norm ? norm->world : 1)};
    ret->sums[SUM_VALID] = x.sums.valid;
    ret->sums[SUM_ENTROPY] = x.sums.entropy;
    ret->sums[SUM_CORRECT] = x.sums.correct;
    return 0;
}

static void sft_metrics(struct trl_run *run, bool train, const double *sums)
{
    struct trl_meter *m = train ? &run->train_meter : &run->eval_meter;
    double n = sums[SUM_VALID];
    trl_meter_add(m, "entropy", n > 0 ? sums[SUM_ENTROPY] / n : 0);
    trl_meter_add(m, "mean_token_accuracy", n > 0 ? sums[SUM_CORRECT] / n : 0);
}

static int sft_open_data(struct trl_run *run, struct trl_err *err)
{
    const struct trl_model_info *info = trl_model_get_info(run->model);
    struct trl_sft_prepare prep = {
        .cfg = run->cfg,
        .tok = run->tok,
        .tpl = run->tpl,
        .pool = run->pool,
        .vocab_size = info->vocab_size,
        .max_positions = info->learned_positions ? info->max_positions : 0,
    };
    int rc = trl_dataset_open_sft(&run->train_data, &run->eval_data, &prep, err);
    if (rc || run->comm.rank != 0)
        return rc;
    /* neither is an error: Gemma 3's tokenizer knows a token that its text model lacks, and rotary positions have no end */
    int64_t ids = trl_tokenizer_vocab_size(run->tok), longest = trl_dataset_max_len(run->train_data);
    if (ids > info->vocab_size)
        trl_warn("the tokenizer knows %lld ids, the model's vocabulary has %lld entries; a row that uses one of the others is refused",
            (long long)ids, (long long)info->vocab_size);
    if (info->max_positions > 0 && longest > info->max_positions)
        trl_warn("the longest row has %lld tokens, the model was made for %lld positions (max_position_embeddings); it is trained beyond "
            "them, as in TRL; max_length cuts rows", (long long)longest, (long long)info->max_positions);
    return 0;
}

const struct trl_trainer trl_trainer_sft = {
    .name = "sft",
    .n_sums = N_SFT_SUMS,
    .open_data = sft_open_data,
    .micro = sft_micro,
    .metrics = sft_metrics,
};
