-- Log lines are stored in the transaction of the checkpoint that follows them.

-- The function gets another parameter: without this, its old form would remain beside the new one.
drop function if exists stillwake.save_checkpoints(uuid[], bigint[], uuid[], text[], jsonb[], bigint[]);
