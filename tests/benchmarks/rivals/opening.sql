-- ledger_open with another protection in place of the advisory lock, or with none, and not another letter: each is made from the
-- function that the ledger uses. Wants rivals.holder (tables.sql).
DO $$
DECLARE
    lock_line CONSTANT text := 'PERFORM pg_advisory_xact_lock(lock_number);';
    head      CONSTANT text := 'FUNCTION public.ledger_open(';
    opening   CONSTANT text := pg_get_functiondef('public.ledger_open'::regproc);
    rival     record;
BEGIN
    IF strpos(opening, lock_line) = 0 OR strpos(opening, head) = 0 THEN
        RAISE EXCEPTION 'ledger_open is no longer written as the rivals expect it';
    END IF;
    FOR rival IN
        VALUES
            ('row_lock', 'PERFORM FROM rivals.holder h WHERE h.holder_id = holder FOR UPDATE;'),
            -- Not ledger_entry itself, for which the application has no right to such a lock; all of these spends meet here all the same.
            ('table_lock', 'LOCK TABLE rivals.holder IN EXCLUSIVE MODE;'),
            -- The isolation of the transaction protects it.
            ('serializable', '')
    LOOP
        EXECUTE replace(replace(opening, head, format('FUNCTION rivals.open_by_%s(', rival.column1)), lock_line, rival.column2);
    END LOOP;
END $$;
